"""What a capture holds that checks look at: requests that may carry tools, rows, contracts, and calls into nothing."""
