"""Plans and reports as one HTML file: template, styles and scripts lie beside this module."""
