from tests.kernel.journals import main

main()
