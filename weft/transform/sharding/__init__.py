"""Sharding: one program on a mesh of devices, each of which computes a part of every tensor."""
