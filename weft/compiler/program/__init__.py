"""The program of a first-order ``main``: steps, memory plan, generated main function."""
