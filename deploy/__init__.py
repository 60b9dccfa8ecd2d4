"""What runs Potstill, and what operators look at."""
