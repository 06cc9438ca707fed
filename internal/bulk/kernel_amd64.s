#include "textflag.h"

// Each kernel: DI dst (on a line), SI src, CX bytes (a multiple of 64, not 0).
// Four lines a turn while there are four, so that loads of a turn are under way
// together; then single lines.

// func streamAVX512(dst, src *byte, n uint64)
// Z16 and above: no transition penalty, so no VZEROUPPER is due.
TEXT ·streamAVX512(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SUBQ $256, CX
	JB   rest

four:
	VMOVDQU64 (SI), Z16
	VMOVDQU64 64(SI), Z17
	VMOVDQU64 128(SI), Z18
	VMOVDQU64 192(SI), Z19
	VMOVNTDQ  Z16, (DI)
	VMOVNTDQ  Z17, 64(DI)
	VMOVNTDQ  Z18, 128(DI)
	VMOVNTDQ  Z19, 192(DI)
	ADDQ      $256, SI
	ADDQ      $256, DI
	SUBQ      $256, CX
	JAE       four

rest:
	ADDQ $256, CX
	JZ   done

one:
	VMOVDQU64 (SI), Z16
	VMOVNTDQ  Z16, (DI)
	ADDQ      $64, SI
	ADDQ      $64, DI
	SUBQ      $64, CX
	JNZ       one

done:
	SFENCE
	RET

// func streamAVX2(dst, src *byte, n uint64)
TEXT ·streamAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SUBQ $256, CX
	JB   rest

four:
	VMOVDQU  (SI), Y0
	VMOVDQU  32(SI), Y1
	VMOVDQU  64(SI), Y2
	VMOVDQU  96(SI), Y3
	VMOVDQU  128(SI), Y4
	VMOVDQU  160(SI), Y5
	VMOVDQU  192(SI), Y6
	VMOVDQU  224(SI), Y7
	VMOVNTDQ Y0, (DI)
	VMOVNTDQ Y1, 32(DI)
	VMOVNTDQ Y2, 64(DI)
	VMOVNTDQ Y3, 96(DI)
	VMOVNTDQ Y4, 128(DI)
	VMOVNTDQ Y5, 160(DI)
	VMOVNTDQ Y6, 192(DI)
	VMOVNTDQ Y7, 224(DI)
	ADDQ     $256, SI
	ADDQ     $256, DI
	SUBQ     $256, CX
	JAE      four

rest:
	ADDQ $256, CX
	JZ   done

one:
	VMOVDQU  (SI), Y0
	VMOVDQU  32(SI), Y1
	VMOVNTDQ Y0, (DI)
	VMOVNTDQ Y1, 32(DI)
	ADDQ     $64, SI
	ADDQ     $64, DI
	SUBQ     $64, CX
	JNZ      one

done:
	SFENCE
	VZEROUPPER
	RET

// func streamSSE2(dst, src *byte, n uint64)
TEXT ·streamSSE2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

one:
	MOVOU  (SI), X0
	MOVOU  16(SI), X1
	MOVOU  32(SI), X2
	MOVOU  48(SI), X3
	MOVNTO X0, (DI)
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	ADDQ   $64, SI
	ADDQ   $64, DI
	SUBQ   $64, CX
	JNZ    one
	SFENCE
	RET

// func moveBytes(dst, src *byte, n uint64)
TEXT ·moveBytes(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	REP; MOVSB
	RET
