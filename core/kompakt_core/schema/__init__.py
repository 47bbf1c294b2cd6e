"""Objects from outside, read field by field: every error names the field's path and says what would be right."""
