"""Random numbers: seeded as the source seeds them, or drawn anew."""
