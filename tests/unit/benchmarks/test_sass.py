"""Paths through a kernel's machine code, found on a few made-up lines."""

import pytest

from benchmarks.sass import NoPath, blocks, path

# One loop: three instructions, then either 2 or 3 wide stores, a detour of which nothing is stored, and the jump back.
TEXT = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   FFMA R4, R4, R5, R6 ;
        /*0030*/                   ISETP.GE.AND P0, PT, R4, 0x1, PT ;
        /*0040*/              @P0  BRA `(.L_x_2) ;
        /*0050*/                   POPC R5, R6 ;
        /*0060*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0070*/                   STG.E.128 desc[UR4][R2.64+0x10], R4 ;
        /*0080*/                   BRA `(.L_x_1) ;
.L_x_2:
        /*0090*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*00a0*/                   STG.E.64 desc[UR4][R2.64], R4 ;
.L_x_1:
        /*00b0*/             @!P1  BRA `(.L_x_3) ;
        /*00c0*/                   LOP3.LUT R7, R7, R8, R9, 0x96, !PT ;
.L_x_3:
        /*00d0*/              @P2  BRA `(.L_x_0) ;
        /*00e0*/                   EXIT ;
"""


def test_accesses_tell_the_branch_and_detours_are_left_out():
    graph = blocks(TEXT)
    wide = path(graph, "STG", (2, 0), 2)
    assert [one.name for one in wide.instructions] == ["LDG", "FFMA", "ISETP", "BRA", "POPC", "STG", "STG", "BRA", "BRA", "BRA"]
    mixed = path(graph, "STG", (1, 1), 2)
    assert [one.name for one in mixed.instructions] == ["LDG", "FFMA", "ISETP", "BRA", "STG", "STG", "BRA", "BRA"]


def test_slow_instructions_weigh_what_their_unit_needs():
    counted = path(blocks(TEXT), "STG", (2, 0), 2)
    assert counted.issued == 5
    assert counted.weighted == 5 + 7 / 2
    assert counted.of("fp32") == 0.5
    assert counted.limit == (24.0, "memory")  # three accesses of 16 bytes a lane, 4 clocks of 4 issue slots each


def test_what_no_branch_moves_is_no_path():
    with pytest.raises(NoPath, match="4 accesses STG of 16 bytes"):
        path(blocks(TEXT), "STG", (4, 0), 2)
