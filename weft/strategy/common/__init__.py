"""What the strategies of CPUs and GPUs share; it knows neither."""
