"""Dialects: each parses a text into a document and interprets that document as a program."""
