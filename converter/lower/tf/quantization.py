"""Numbers of few bits: fake quantisation, quantised and back."""
