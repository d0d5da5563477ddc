"""The Bloom encoding: parameters, calibration, planner, noise, law of readings."""
