"""What is forward, backward and update in a program, and where ops stand along the model."""
