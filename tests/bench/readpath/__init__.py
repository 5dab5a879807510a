"""What tests/bench/read-path is made of."""
