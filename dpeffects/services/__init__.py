"""What answers people who may not see the data: questions of a centre to sites."""
