"""A page about what was measured: numbers reduced to what a picture shows, pictures as SVG, one HTML file."""
