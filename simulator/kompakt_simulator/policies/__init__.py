"""In which order waiting jobs are tried: one file per policy, one line each in the table."""
