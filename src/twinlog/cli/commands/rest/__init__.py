"""What REST needs beside a running mirror: tokens."""
