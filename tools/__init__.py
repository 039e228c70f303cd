"""What of flash-ladder is Python and no package of its own: the site, the plots, the evidence, the mutants, the course, and the
tests of these and of the command line. Run from the repository's root: `python3 -m tools.plots climb docs/results/h200.csv`."""
