def main(a): return 0
