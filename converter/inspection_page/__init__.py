"""A page about one artifact: its facts, layers, sizes, weights and graph, as one HTML file."""
