//! Serpent's S-boxes and their inverses as circuits: bit n of a value is in word n. Found by a search of
//! our own for few operations; the tests compare each with its table.

use super::lanes::BlockWords;

#[inline(always)]
pub(super) fn s0<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = d.xor(a);
    let t2 = t1.xor(c);
    let t3 = d.and(a);
    let t4 = t2.xor(b);
    let t5 = t4.xor(t3);
    let t6 = t1.and(b);
    let t7 = t6.xor(a);
    let t8 = t7.not();
    let t9 = t7.xor(t2);
    let t10 = t5.not_and(t9);
    let t11 = t10.xor(t8);
    let t12 = t7.or(c);
    let t13 = t11.xor(t9);
    let t14 = t12.xor(t4);
    [t13, t11, t14, t5]
}

#[inline(always)]
pub(super) fn s1<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = a.not_and(b);
    let t2 = t1.not();
    let t3 = d.xor(b);
    let t4 = t2.xor(c);
    let t5 = t3.xor(a);
    let t6 = t4.xor(d);
    let t7 = d.not_and(t5);
    let t8 = t7.xor(b);
    let t9 = t8.or(t4);
    let t10 = t9.xor(t5);
    let t11 = t8.xor(t4);
    let t12 = t11.not();
    let t13 = t10.not_and(t12);
    let t14 = t13.xor(t4);
    let t15 = t12.xor(t10);
    [t14, t10, t6, t15]
}

#[inline(always)]
pub(super) fn s2<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = c.and(a);
    let t2 = t1.xor(d);
    let t3 = t2.not_and(b);
    let t4 = t3.xor(c);
    let t5 = t4.xor(a);
    let t6 = t2.xor(b);
    let t7 = d.or(a);
    let t8 = t7.xor(b);
    let t9 = t6.xor(c);
    let t10 = t8.or(t5);
    let t11 = t10.xor(t2);
    let t12 = t11.xor(t8);
    let t13 = t5.not();
    let t14 = t12.xor(t5);
    [t9, t11, t14, t13]
}

#[inline(always)]
pub(super) fn s3<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = d.not_and(c);
    let t2 = t1.not_and(b);
    let t3 = c.not_and(d);
    let t4 = t3.or(a);
    let t5 = t4.xor(t2);
    let t6 = t5.xor(a);
    let t7 = t4.xor(c);
    let t8 = t7.xor(b);
    let t9 = t6.not_and(t7);
    let t10 = t9.xor(d);
    let t11 = b.not_and(d);
    let t12 = t10.not_and(a);
    let t13 = a.not_and(t9);
    let t14 = t12.xor(t8);
    let t15 = t11.xor(t8);
    let t16 = t15.xor(t13);
    [t5, t16, t10, t14]
}

#[inline(always)]
pub(super) fn s4<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = a.not_and(d);
    let t2 = t1.xor(c);
    let t3 = t2.or(b);
    let t4 = t2.xor(d);
    let t5 = t3.xor(a);
    let t6 = t5.or(d);
    let t7 = t5.xor(d);
    let t8 = t7.and(b);
    let t9 = t4.not_and(t6);
    let t10 = t9.xor(b);
    let t11 = t8.xor(t2);
    let t12 = t5.xor(t2);
    let t13 = t10.not_and(t11);
    let t14 = t13.xor(t12);
    let t15 = t11.not();
    [t15, t10, t14, t7]
}

#[inline(always)]
pub(super) fn s5<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = b.not_and(a);
    let t2 = t1.xor(c);
    let t3 = d.not();
    let t4 = b.xor(a);
    let t5 = t4.not_and(t3);
    let t6 = t5.xor(t2);
    let t7 = t4.xor(t3);
    let t8 = d.not_and(t6);
    let t9 = b.not_and(t6);
    let t10 = t8.not_and(t7);
    let t11 = t10.xor(t9);
    let t12 = t11.xor(t2);
    let t13 = t12.or(t9);
    let t14 = t13.xor(a);
    let t15 = t8.xor(t4);
    [t6, t15, t11, t14]
}

#[inline(always)]
pub(super) fn s6<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = d.and(a);
    let t2 = t1.xor(c);
    let t3 = b.not();
    let t4 = t3.xor(t2);
    let t5 = t4.xor(d);
    let t6 = t5.xor(a);
    let t7 = t6.not_and(b);
    let t8 = t7.xor(d);
    let t9 = t2.not_and(t8);
    let t10 = t9.xor(t6);
    let t11 = t2.not_and(t10);
    let t12 = t11.xor(t8);
    let t13 = t12.not_and(t10);
    let t14 = t13.xor(t2);
    [t12, t4, t10, t14]
}

#[inline(always)]
pub(super) fn s7<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = b.not_and(c);
    let t2 = t1.xor(d);
    let t3 = t2.not_and(a);
    let t4 = t3.xor(c);
    let t5 = t4.xor(b);
    let t6 = t5.or(t3);
    let t7 = t6.xor(t2);
    let t8 = t4.or(t2);
    let t9 = t8.xor(a);
    let t10 = t7.not();
    let t11 = t9.not_and(t5);
    let t12 = t11.xor(t2);
    let t13 = t7.xor(c);
    let t14 = t13.xor(a);
    let t15 = t10.xor(t9);
    let t16 = t15.xor(t11);
    [t16, t14, t12, t5]
}

#[inline(always)]
pub(super) fn i0<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = b.or(a);
    let t2 = t1.xor(c);
    let t3 = t2.not();
    let t4 = d.xor(a);
    let t5 = t3.xor(d);
    let t6 = t4.xor(b);
    let t7 = t6.and(d);
    let t8 = t7.xor(b);
    let t9 = t8.xor(t2);
    let t10 = t8.not_and(t3);
    let t11 = t10.xor(t6);
    let t12 = t11.or(t9);
    let t13 = t12.xor(t3);
    let t14 = t11.xor(t9);
    [t11, t13, t5, t14]
}

#[inline(always)]
pub(super) fn i1<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = b.not_and(d);
    let t2 = t1.xor(a);
    let t3 = t2.xor(d);
    let t4 = t3.xor(b);
    let t5 = t2.xor(c);
    let t6 = t4.and(t2);
    let t7 = t6.xor(t3);
    let t8 = t7.and(t5);
    let t9 = t8.xor(t4);
    let t10 = t9.not();
    let t11 = t7.xor(t5);
    let t12 = t11.or(t10);
    let t13 = t12.xor(t2);
    let t14 = t11.xor(t9);
    [t10, t14, t13, t5]
}

#[inline(always)]
pub(super) fn i2<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = c.xor(b);
    let t2 = d.xor(a);
    let t3 = t1.xor(d);
    let t4 = t1.not_and(d);
    let t5 = t4.xor(b);
    let t6 = t5.not();
    let t7 = t2.not_and(t6);
    let t8 = t7.xor(t1);
    let t9 = t8.xor(t6);
    let t10 = t9.xor(a);
    let t11 = t3.or(b);
    let t12 = t11.xor(t2);
    let t13 = t12.and(t8);
    let t14 = t13.xor(t6);
    [t12, t10, t8, t14]
}

#[inline(always)]
pub(super) fn i3<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = c.xor(b);
    let t2 = c.not_and(b);
    let t3 = t2.xor(a);
    let t4 = t3.or(d);
    let t5 = b.or(a);
    let t6 = t4.xor(t1);
    let t7 = t5.xor(d);
    let t8 = t7.not_and(t6);
    let t9 = t8.xor(t3);
    let t10 = t4.and(t1);
    let t11 = t10.xor(t7);
    let t12 = t11.xor(b);
    let t13 = t7.or(t3);
    let t14 = t11.xor(t9);
    let t15 = t13.xor(t12);
    [t6, t14, t15, t9]
}

#[inline(always)]
pub(super) fn i4<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = b.or(a);
    let t2 = t1.xor(c);
    let t3 = t2.xor(d);
    let t4 = c.not_and(a);
    let t5 = t4.not_and(t3);
    let t6 = t5.xor(b);
    let t7 = t6.and(d);
    let t8 = t7.xor(a);
    let t9 = t8.xor(t3);
    let t10 = t8.and(t6);
    let t11 = t2.not();
    let t12 = t11.xor(t10);
    let t13 = t12.not_and(t9);
    let t14 = t13.xor(t8);
    let t15 = t14.not();
    [t12, t6, t15, t9]
}

#[inline(always)]
pub(super) fn i5<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = b.not_and(c);
    let t2 = t1.xor(d);
    let t3 = d.and(b);
    let t4 = t3.not_and(a);
    let t5 = t4.xor(c);
    let t6 = t5.xor(t2);
    let t7 = t2.and(a);
    let t8 = t7.xor(t6);
    let t9 = t8.xor(b);
    let t10 = t9.not_and(t6);
    let t11 = t4.or(t1);
    let t12 = a.not_and(t9);
    let t13 = t11.xor(t10);
    let t14 = t12.not();
    let t15 = t14.xor(t2);
    [t6, t9, t13, t15]
}

#[inline(always)]
pub(super) fn i6<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = a.not_and(c);
    let t2 = t1.xor(d);
    let t3 = t2.not();
    let t4 = t3.xor(b);
    let t5 = t3.xor(c);
    let t6 = t5.xor(a);
    let t7 = t6.and(t2);
    let t8 = t7.xor(a);
    let t9 = t8.or(b);
    let t10 = t9.xor(t6);
    let t11 = t10.xor(t8);
    let t12 = t11.xor(b);
    let t13 = t12.and(t10);
    let t14 = t13.xor(t2);
    [t12, t4, t14, t10]
}

#[inline(always)]
pub(super) fn i7<W: BlockWords>([a, b, c, d]: [W; 4]) -> [W; 4] {
    let t1 = b.and(a);
    let t2 = t1.not_and(d);
    let t3 = t2.xor(c);
    let t4 = a.not_and(c);
    let t5 = t4.not_and(t3);
    let t6 = t5.xor(b);
    let t7 = t6.not();
    let t8 = c.not_and(t7);
    let t9 = t8.or(t3);
    let t10 = t9.xor(a);
    let t11 = t3.not_and(t10);
    let t12 = t11.xor(d);
    let t13 = t12.xor(t6);
    let t14 = t10.xor(t6);
    let t15 = t14.not_and(t12);
    let t16 = t15.xor(t3);
    [t10, t13, t6, t16]
}
