"""The Bloom encoding: parameters, calibration, planner, noise, decoder."""
