"""What tests share. No test imports another: what two of them need is here."""
