"""What answers people who may not see the data: plans, releases of sites, questions."""
