//! Statistics for measurements: confidence intervals, ratios of pairs, fits and tests. Pure.
