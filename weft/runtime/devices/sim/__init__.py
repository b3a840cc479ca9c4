"""Simulated devices: CPU devices with memory, threads and links of their own.

A program for several of them runs as it would on several real devices, on any machine: each device
is one worker of kernels, copies between memories take the time that the link states, and no kernel
touches the memory of another device.
"""
