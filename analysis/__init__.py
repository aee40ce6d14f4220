"""What came of a run: reads a run folder and says what it means. Never imports Locust or what sends load."""
