"""How true and how cheap the load generator is: run and reported, never asserted in CI."""
