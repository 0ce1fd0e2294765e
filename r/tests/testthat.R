library(testthat)
library(dpeffects)

test_check("dpeffects")
