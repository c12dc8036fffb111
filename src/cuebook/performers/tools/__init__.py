"""The toolbox: tools by name, their arguments, and Python functions as tools."""
