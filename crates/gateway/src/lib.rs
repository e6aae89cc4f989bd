//! How the world reaches desks: the API, proxying, keys, metrics.
