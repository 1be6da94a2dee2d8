"""What brokers mean by what they say, for all who ask them."""
