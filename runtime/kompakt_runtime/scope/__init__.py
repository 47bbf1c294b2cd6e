"""What is in reach of compression: which calls, tensors and programs, and which are left as they are."""
