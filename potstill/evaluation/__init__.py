"""What an evaluation says, in the loop and offline: the estimators, their intervals, and the suites."""
