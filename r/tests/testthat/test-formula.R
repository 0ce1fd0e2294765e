test_that("formulas are written as Python reads them", {
  pairs <- list(
    list(y ~ t, "y ~ t"),
    list(y ~ t | x1 + x2, "y ~ t | x1 + x2"),
    list(log(y) ~ t | I(x^2) + sqrt(z), "log(y) ~ t | I(x**2) + sqrt(z)"),
    list(y ~ t | a:b + a * b - 1, "y ~ t | a:b + a * b - 1"),
    list(y ~ t | 0 + a, "y ~ t | 0 + a"),
    list(y ~ t | (a + b + c)^2, "y ~ t | (a + b + c)**2"),
    list(y ~ t | . - x, "y ~ t | . - x"),
    list(y ~ t | cut(age, c(18, 40, 65, 90)), "y ~ t | cut(age, [18, 40, 65, 90])"),
    list(y ~ t | cut(age, breaks = c(18, 40)), "y ~ t | cut(age, [18, 40])"),
    list(y ~ cut(dose, c(0, 1.5, 1e6)), "y ~ cut(dose, [0, 1.5, 1000000])"),
    list(y ~ I(dose > 1 & dose <= 5), "y ~ I((dose > 1) * (dose <= 5))"),
    list(y ~ t | factor(g), "y ~ t | C(g)"),
    list(y ~ t | factor(g, levels = c("a", "b's")), "y ~ t | C(g, levels=['a', 'b\\'s'])"),
    list(y ~ C(t, levels = c(1L, 2L)), "y ~ C(t, levels=[1, 2])"),
    list(y ~ t | is.na(x) + clip(x, 0, 100), "y ~ t | is_na(x) + clip(x, 0, 100)"),
    list(Surv(time, status == 2) ~ t, "Surv(time, status == 2) ~ t"),
    list(survival::Surv(time, event) ~ t, "Surv(time, event) ~ t"),
    list(cbind(pain, log(cost)) ~ t | x, "pain + log(cost) ~ t | x"),
    list(
      y ~ t | splines::bs(age, knots = 40, Boundary.knots = c(18, 90), degree = 2),
      "y ~ t | bs(age, knots=[40], lower_bound=18, upper_bound=90, degree=2)"
    ),
    list(y ~ t | `odd name` + a.b + class, "y ~ t | `odd name` + `a.b` + `class`"),
    list(~ age >= 18 & sex %in% c("f", "x"), "age >= 18 & sex in ['f', 'x']"),
    list(~ !is.na(dose) | !(a == 1), "~is_na(dose) | ~(a == 1)"),
    list("y ~ t | I(x**2)", "y ~ t | I(x**2)")
  )
  for (pair in pairs) expect_identical(dp_formula(pair[[1]]), pair[[2]])
})

test_that("long formulas are whole, and values can be put in", {
  names <- paste0("x", 1:3000)
  long <- as.formula(paste("y ~ t |", paste(names, collapse = " + ")))
  expect_identical(dp_formula(long), paste("y ~ t |", paste(names, collapse = " + ")))
  points <- c(0, 0.1, 2)
  inserted <- eval(bquote(y ~ t | cut(x, .(points))))
  expect_identical(dp_formula(inserted), "y ~ t | cut(x, [0, 0.1, 2])")
})

test_that("what cannot be said is told with what to write", {
  expect_error(dp_formula(y ~ t | cut(x, 4)), "learn them from the data", class = "dpeffects_error")
  expect_error(dp_formula(y ~ t | bs(x, 4)), "Boundary.knots")
  expect_error(dp_formula(y ~ t | x | z), "stands once")
  expect_error(dp_formula(y ~ t | I(!x)), "comparisons")
  expect_error(dp_formula(y ~ t | as.numeric(x)), "give it as a column")
  expect_error(dp_formula(y ~ t | cut(x, c(0, Inf))), "finite")
  expect_error(dp_formula(y ~ t | cut(x, c(0, NA))), "is.na")
  expect_error(dp_formula(y ~ t | cut(x, c(0, 1), right = FALSE)), "nothing else")
  expect_error(dp_formula(3), "outcome ~ treatment")
})

test_that("an expression has the same value in both languages", {
  skip_without_python()
  set.seed(1)
  space <- list(a = 1.75, b = -0.4, d = 3.2)
  python <- reticulate::py_run_string("a, b, d = 1.75, -0.4, 3.2")
  tree <- function(depth) {
    if (depth == 0) {
      return(if (runif(1) < 0.6) as.name(sample(names(space), 1)) else round(runif(1, 1, 9), 2))
    }
    kind <- sample(c("+", "-", "*", "/", "sign", "^", "("), 1)
    switch(kind,
      sign = call("-", tree(depth - 1)),
      "^" = call("^", tree(depth - 1), 2),
      "(" = call("(", tree(depth - 1)),
      "/" = call("/", tree(depth - 1), sample(c(quote(a), quote(a * b), quote(b / d)), 1)[[1]]),
      call(kind, tree(depth - 1), tree(depth - 1))
    )
  }
  for (i in 1:200) {
    expression <- tree(i %% 5)
    compared <- if (i %% 2) call("<", expression, tree(2)) else expression
    text <- dp_formula(eval(call("~", compared)))
    expect_equal(
      as.numeric(reticulate::py_eval(text)), as.numeric(eval(compared, space)),
      tolerance = 1e-12, info = text
    )
  }
})
