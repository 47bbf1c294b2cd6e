"""What is counted while training runs, and how it leaves the process: files, a page of metrics, a termination message."""
