"""What tests/bench/members is made of."""
