"""Inputs to compare models on."""
