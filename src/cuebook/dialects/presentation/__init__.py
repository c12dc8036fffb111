"""What dialects give and surfaces render: values that say nothing about how they are shown."""
