"""What is declared in code: tables with columns and checks, and the steps that fill them."""
