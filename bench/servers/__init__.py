"""Start scripts of real LLM servers on a CPU; see bench/servers/README.md. Standard library only."""
