"""The parts of tests/bench/read-path."""
