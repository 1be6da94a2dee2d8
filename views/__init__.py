"""State to derived views: built aside, verified, published."""
