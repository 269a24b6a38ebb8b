//! Comparisons of numbers: bytes of headers, constants, arithmetic.
//!
//! Each operand is appended to the list of relations as it is read, in postfix order.

use super::FilterError;
use super::lexer::Token;
use super::names;
use super::parser::{Operand, Parser, base};
use super::program::{Arith, Base, Binary, Relation, STACK_MAX, Test};

impl Parser<'_> {
    /// What follows the first number of a relation, which may also be a number in parentheses.
    pub(super) fn relation(&mut self, from: usize) -> Result<Operand, FilterError> {
        self.arithmetic_rest(0)?;
        let relation = match self.peek() {
            Token::Symbol("=" | "==") => Relation::Equal,
            Token::Symbol("!=") => Relation::Unequal,
            Token::Symbol("<") => Relation::Less,
            Token::Symbol("<=") => Relation::LessOrEqual,
            Token::Symbol(">") => Relation::Greater,
            Token::Symbol(">=") => Relation::GreaterOrEqual,
            Token::Symbol(")") if self.depth > 0 => return Ok(Operand::Number),
            _ => return Err(self.expected("a comparison such as `= 8` or `!= 0`")),
        };
        self.advance();
        self.arithmetic(0)?;
        let ops = &self.arith[from..];
        if stack(ops) > STACK_MAX {
            return Err(
                self.expected(format!("at most {STACK_MAX} numbers at once in a comparison"))
            );
        }
        // Bytes of a header are compared where the header is there.
        let mut bases: Vec<Base> = Vec::new();
        for op in ops {
            if let Arith::Load(base, _) = op
                && *base != Base::Ether
                && !bases.contains(base)
            {
                bases.push(*base);
            }
        }
        let relation = Test::Relation(from as u32, self.arith.len() as u32, relation);
        let mut skips = Vec::new();
        for base in bases {
            self.push(Test::Has(base));
            skips.push(self.skip(false));
        }
        self.push(relation);
        skips.into_iter().for_each(|skip| self.land(skip));
        self.carry = None;
        Ok(Operand::Truth)
    }

    /// A number: `-`, `len`, a number, its name, bytes, or arithmetic in parentheses; then operators that bind at least as
    /// `floor` does.
    pub(super) fn arithmetic(&mut self, floor: u8) -> Result<(), FilterError> {
        self.number()?;
        self.arithmetic_rest(floor)
    }

    pub(super) fn arithmetic_rest(&mut self, floor: u8) -> Result<(), FilterError> {
        while let Some((binary, binds)) = self.binary().filter(|(_, binds)| *binds >= floor) {
            self.advance();
            let by_zero = self.expected("a divisor other than 0");
            let right = self.arith.len();
            self.arithmetic(binds + 1)?;
            let folded = match self.arith[right - 1..] {
                [_, Arith::Const(0)] if matches!(binary, Binary::Divide | Binary::Remainder) => {
                    return Err(by_zero);
                }
                [Arith::Const(left), Arith::Const(right)] => binary.of(left, right),
                _ => None,
            };
            if let Some(value) = folded {
                self.arith.truncate(right - 1);
                self.arith.push(Arith::Const(value));
            } else {
                self.arith.push(Arith::Binary(binary));
            }
        }
        Ok(())
    }

    /// The next operator, and how tightly it binds: as in C.
    pub(super) fn binary(&self) -> Option<(Binary, u8)> {
        let Token::Symbol(symbol) = self.peek() else { return None };
        Some(match symbol {
            "|" => (Binary::Or, 0),
            "^" => (Binary::Xor, 1),
            "&" => (Binary::And, 2),
            "<<" => (Binary::ShiftLeft, 3),
            ">>" => (Binary::ShiftRight, 3),
            "+" => (Binary::Add, 4),
            "-" => (Binary::Subtract, 4),
            "*" => (Binary::Multiply, 5),
            "/" => (Binary::Divide, 5),
            "%" => (Binary::Remainder, 5),
            _ => return None,
        })
    }

    pub(super) fn number(&mut self) -> Result<(), FilterError> {
        let expected = "a number, its name such as tcp-syn, or bytes such as tcp[13]";
        match self.peek() {
            Token::Number(number) => {
                self.advance();
                self.arith.push(Arith::Const(number));
            }
            Token::Symbol("-") => {
                self.advance();
                self.deeper()?;
                self.number()?;
                self.depth -= 1;
                match self.arith.last_mut() {
                    Some(Arith::Const(number)) => *number = number.wrapping_neg(),
                    _ => self.arith.push(Arith::Negate),
                }
            }
            Token::Symbol("(") => {
                self.deeper()?;
                self.advance();
                self.arithmetic(0)?;
                self.close(")", "an operator or `)`")?;
            }
            Token::Word("len") => {
                self.advance();
                self.arith.push(Arith::Len);
            }
            Token::Word(word) => {
                if let Some(number) = names::constant(word) {
                    self.advance();
                    self.arith.push(Arith::Const(number));
                } else if let Some(base) = base(word) {
                    self.advance();
                    if !self.is_symbol("[") {
                        return Err(self.expected(format!("`[` and an offset, such as {word}[0]")));
                    }
                    self.bytes(base)?;
                } else {
                    return Err(self.expected(expected));
                }
            }
            _ => return Err(self.expected(expected)),
        }
        Ok(())
    }

    /// `[ offset [ ":" size ] ]`.
    pub(super) fn bytes(&mut self, base: Base) -> Result<(), FilterError> {
        self.deeper()?;
        self.advance();
        self.arithmetic(0)?;
        let mut size = 1;
        if self.is_symbol(":") {
            self.advance();
            size = match self.peek() {
                Token::Number(size @ (1 | 2 | 4)) => size as u8,
                _ => return Err(self.expected("a size of 1, 2 or 4 bytes")),
            };
            self.advance();
        }
        self.close("]", "an operator, `:` and a size, or `]`")?;
        self.arith.push(Arith::Load(base, size));
        Ok(())
    }
}

/// Numbers that operations keep at once at most.
fn stack(ops: &[Arith]) -> usize {
    let (mut n, mut most) = (0usize, 0);
    for op in ops {
        match op {
            Arith::Const(_) | Arith::Len => n += 1,
            Arith::Binary(_) => n -= 1,
            Arith::Load(..) | Arith::Negate => {}
        }
        most = most.max(n);
    }
    most
}
