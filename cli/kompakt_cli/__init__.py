"""The kompakt command, also as kubectl kompakt."""
