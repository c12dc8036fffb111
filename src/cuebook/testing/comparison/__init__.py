"""Compares playbooks and models over the same cases: plans the runs, estimates their cost, drives them and judges them."""
