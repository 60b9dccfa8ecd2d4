"""How an answer is found in a response, and when two answers are the same. Runs inside workers only."""
