//! Whether actions and instructions can be carried out (OpenFlow 1.3.5 §6.4, §7.2.5).

use openflow::action::Action;
use openflow::flow::ANY_GROUP;
use openflow::group::GROUP_MAX;
use openflow::{ErrorCode, Field, Instruction, Match, PortNo, Version};

use crate::action_set;
use crate::edit::{is_mpls, is_vlan};
use crate::headers::VID_PRESENT;

/// A port of each protocol that has them.
const PORTS: [Field; 3] = [Field::TcpSrc, Field::UdpSrc, Field::SctpSrc];

/// What there is beside flows.
pub(crate) struct Known<'a> {
    /// Tables.
    pub(crate) tables: u8,
    /// Which groups there are.
    pub(crate) group: &'a dyn Fn(u32) -> bool,
    /// Which meters there are.
    pub(crate) meter: &'a dyn Fn(u32) -> bool,
    /// Which queues there are: of a port, or of any.
    pub(crate) queue: &'a dyn Fn(Option<PortNo>, u32) -> bool,
    /// Whether the switch has a port LOCAL.
    pub(crate) local: bool,
    /// The rules of this version.
    pub(crate) version: Version,
}

impl Known<'_> {
    /// Instructions of a flow of `table` with this match.
    pub(crate) fn instructions(
        &self,
        table: u8,
        matches: &Match,
        instructions: &[Instruction],
    ) -> Result<(), ErrorCode> {
        let mut kinds = 0u8;
        let (mut packet, mut is_inside) = (matches.clone(), false);
        // The set is carried out last, whatever the order on the wire is.
        let is_last =
            |instruction: &&Instruction| matches!(instruction, Instruction::WriteActions(_));
        let first = instructions.iter().filter(|instruction| !is_last(instruction));
        for instruction in first.chain(instructions.iter().filter(is_last)) {
            let kind = match instruction {
                Instruction::GotoTable(next) => {
                    if *next <= table || *next >= self.tables {
                        return Err(ErrorCode::BadInstructionTableId);
                    }
                    0
                }
                Instruction::WriteMetadata { .. } => 1,
                Instruction::WriteActions(actions) => {
                    if let Some(own) = actions.iter().find(|own| action_set::place(own).is_none()) {
                        return Err(own.refusal());
                    }
                    // A group hides an output, and the last one others; those have to be right as well.
                    let is_hidden = |action: &&Action| {
                        matches!(action, Action::Output { .. } | Action::Group(_))
                    };
                    let hidden: Vec<Action> = actions.iter().filter(is_hidden).cloned().collect();
                    self.actions(&hidden, &mut packet, &mut is_inside)?;
                    self.actions(&action_set::ordered(actions), &mut packet, &mut is_inside)?;
                    2
                }
                Instruction::ApplyActions(actions) => {
                    self.actions(actions, &mut packet, &mut is_inside)?;
                    3
                }
                Instruction::ClearActions => 4,
                Instruction::Meter(meter) => {
                    if !(self.meter)(*meter) {
                        return Err(ErrorCode::MeterModUnknownMeter);
                    }
                    5
                }
                Instruction::Experimenter { .. } => {
                    return Err(ErrorCode::BadInstructionExperimenter);
                }
            };
            if kinds & 1 << kind != 0 {
                return Err(ErrorCode::BadInstructionDup);
            }
            kinds |= 1 << kind;
        }
        Ok(())
    }

    /// Actions in the order in which they are carried out, on packets of which `packet` is known; it follows the actions.
    /// `is_inside`: they are behind a tag of PBB that went, where nothing is known.
    pub(crate) fn actions(
        &self,
        actions: &[Action],
        packet: &mut Match,
        is_inside: &mut bool,
    ) -> Result<(), ErrorCode> {
        let is_13 = self.version == Version::V13;
        for action in actions {
            let ethertype = packet.exact(Field::EthType);
            let is_of = |all: [u128; 2]| match ethertype {
                Some(own) => all.contains(&own),
                None => *is_inside,
            };
            match action {
                Action::Output { port, .. } => self.output_port(*port)?,
                Action::Enqueue { port, queue } => {
                    let is_local = *port == PortNo::LOCAL && self.local;
                    if !(port.is_ordinary() || *port == PortNo::IN_PORT || is_local) {
                        return Err(ErrorCode::BadActionOutPort);
                    }
                    if !(self.queue)(Some(*port).filter(|port| *port != PortNo::IN_PORT), *queue) {
                        return Err(ErrorCode::BadActionQueue);
                    }
                }
                Action::SetQueue(queue) => {
                    if !(self.queue)(None, *queue) {
                        return Err(ErrorCode::BadActionQueue);
                    }
                }
                Action::Group(group) => {
                    if *group > GROUP_MAX && *group != ANY_GROUP || !(self.group)(*group) {
                        return Err(ErrorCode::BadActionOutGroup);
                    }
                }
                Action::SetField(field, value) => {
                    if matches!(field, Field::InPort | Field::InPhyPort | Field::Ipv6Exthdr) {
                        return Err(ErrorCode::BadActionSetType);
                    }
                    let has_tag = *value & u128::from(VID_PRESENT) != 0;
                    if *value > field.full() || is_13 && *field == Field::VlanVid && !has_tag {
                        return Err(ErrorCode::BadActionSetArgument);
                    }
                    if is_13 && !packet.provides(*field) {
                        return Err(ErrorCode::BadActionMatchInconsistent);
                    }
                    if packet.get(*field).is_some()
                        || matches!(field, Field::EthType | Field::IpProto)
                    {
                        packet.set(*field, *value, field.full());
                    }
                }
                Action::PushVlan(ethertype) => {
                    if !is_vlan(*ethertype) {
                        return Err(ErrorCode::BadActionArgument);
                    }
                    packet.set(Field::VlanVid, VID_PRESENT.into(), VID_PRESENT.into());
                }
                Action::SetVlanVid(_) | Action::SetVlanPcp(_) => {
                    packet.set(Field::VlanVid, VID_PRESENT.into(), VID_PRESENT.into());
                }
                Action::PopVlan => packet.set(Field::VlanVid, 0, Field::VlanVid.full()),
                Action::PushMpls(ethertype) => {
                    if !is_mpls(*ethertype) {
                        return Err(ErrorCode::BadActionArgument);
                    }
                    packet.set(Field::EthType, u128::from(*ethertype), Field::EthType.full());
                }
                Action::PopMpls(ethertype) => {
                    if is_13 && !packet.provides(Field::MplsLabel) {
                        return Err(ErrorCode::BadActionMatchInconsistent);
                    }
                    packet.set(Field::EthType, u128::from(*ethertype), Field::EthType.full());
                }
                Action::PushPbb(ethertype) => {
                    if *ethertype != 0x88e7 {
                        return Err(ErrorCode::BadActionArgument);
                    }
                    packet.set(Field::EthType, 0x88e7, Field::EthType.full());
                }
                // What is inside is not known; the EtherType behind it may be any.
                Action::PopPbb => {
                    packet.set(Field::EthType, 0, 0);
                    *is_inside = true;
                }
                Action::SetNwTtl(_) | Action::DecNwTtl if is_13 && !is_of([0x0800, 0x86dd]) => {
                    return Err(ErrorCode::BadActionMatchInconsistent);
                }
                Action::SetMplsTtl(_) | Action::DecMplsTtl if is_13 && !is_of([0x8847, 0x8848]) => {
                    return Err(ErrorCode::BadActionMatchInconsistent);
                }
                Action::SetTpSrc(_) | Action::SetTpDst(_)
                    if is_13 && !PORTS.iter().any(|port| packet.provides(*port)) =>
                {
                    return Err(ErrorCode::BadActionMatchInconsistent);
                }
                Action::Experimenter { .. } => return Err(action.refusal()),
                Action::CopyTtlOut
                | Action::CopyTtlIn
                | Action::SetMplsTtl(_)
                | Action::DecMplsTtl
                | Action::SetNwTtl(_)
                | Action::DecNwTtl
                | Action::SetTpSrc(_)
                | Action::SetTpDst(_) => {}
            }
        }
        Ok(())
    }

    /// A port that packets can be sent to by a flow. A controller must hear of a LOCAL that there is not (1.3.5 §4.5).
    fn output_port(&self, port: PortNo) -> Result<(), ErrorCode> {
        let is_known = match port {
            PortNo::IN_PORT | PortNo::NORMAL | PortNo::FLOOD | PortNo::ALL | PortNo::CONTROLLER => {
                true
            }
            PortNo::LOCAL => self.local,
            _ => port.is_ordinary(),
        };
        if is_known { Ok(()) } else { Err(ErrorCode::BadActionOutPort) }
    }
}
