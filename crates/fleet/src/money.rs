//! Prices, costs, budgets.
