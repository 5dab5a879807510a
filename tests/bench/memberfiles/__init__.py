"""The parts of tests/bench/members."""
