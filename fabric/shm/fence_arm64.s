#include "textflag.h"

// func orderStores()
TEXT ·orderStores(SB), NOSPLIT, $0-0
	DMB $0xa // ISHST
	RET

// func orderLoads()
TEXT ·orderLoads(SB), NOSPLIT, $0-0
	DMB $0xb // ISH
	RET
