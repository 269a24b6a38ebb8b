//! Packets that are sealed: their numbers, room, headers, and a group at a time encryption.

use arrayvec::ArrayVec;
use chunk::{Packet, Pool, Verdict};
use crypto::esp::{self, Numbers, Seal};
use ipsec::Association;
use ipsec::outbound::{self, Plan};
use packet::EtherType;

use super::super::device::keys::EspKeys;
use super::super::{move_headers, reasons};
use super::{EspOut, FRAME_MAX, GROUP, Member, Ready};

impl EspOut {
    /// Seals the packets of a group, in the order of their rows, or prepares those whose keys are among `keys`.
    pub(super) fn seal(
        &mut self,
        members: &[Member<'_>],
        verdicts: &mut [u32],
        packets: &mut [Packet],
        (pool, keys): (&mut Pool, Option<&EspKeys>),
    ) {
        let before = self.prepared.len();
        self.owners.note(members.iter().map(|own| own.association));
        {
            let mut seals: ArrayVec<Seal<'_>, GROUP> = ArrayVec::new();
            let mut of: ArrayVec<usize, GROUP> = ArrayVec::new();
            let mut numbers: Option<(&Association, Numbers<'_>)> = None;
            let mut wanted = members.iter().enumerate().peekable();
            let first = members.first().map_or(0, |own| usize::from(own.row));
            for (row, packet) in packets.iter_mut().enumerate().skip(first) {
                let Some((at, member)) = wanted.next_if(|(_, own)| usize::from(own.row) == row)
                else {
                    if wanted.peek().is_none() { break } else { continue }
                };
                let Member { association, plan, .. } = member;
                let l3 = usize::from(member.l3);
                if !grow(packet, pool, plan, l3) {
                    verdicts[row] = Verdict::drop(chunk::reasons::NO_CELLS).0;
                    continue;
                }
                // Packets of an association that follow one another take their numbers together.
                if numbers.as_ref().is_none_or(|own| !std::ptr::eq(own.0, *association)) {
                    let same = |own: &&Member<'_>| std::ptr::eq(own.association, *association);
                    let count = members[at..].iter().take_while(same).count();
                    numbers =
                        association.sealer().map(|own| (*association, own.take(count as u64)));
                }
                let Some(number) = numbers.as_mut().and_then(|own| own.1.next()) else {
                    association.run_out();
                    verdicts[row] = Verdict::drop(reasons::SA_EXPIRED).0;
                    continue;
                };
                let (payload, padding) = (plan.payload_range(), plan.padding as usize);
                if packet.cells() == 1 {
                    let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
                    plan.write_headers(association, ip, number.value());
                    if let Some(key) = keys.and_then(|keys| keys.place(association)) {
                        match number.prepare(ip, payload, plan.next_header, padding) {
                            Ok(own) => {
                                let packet = l3 + own.packet.start..l3 + own.packet.end;
                                let high = own.high;
                                self.prepared.push(Ready { row, key, l3, packet, high });
                            }
                            Err(_) => verdicts[row] = Verdict::drop(reasons::ESP_TOO_BIG).0,
                        }
                        continue;
                    }
                    seals.push(number.seal(ip, payload, plan.next_header, padding));
                    of.push(at);
                    continue;
                }
                // A frame over several cells, by itself.
                self.scratch.resize(plan.len().min(FRAME_MAX), 0);
                packet.read_at(l3, &mut self.scratch);
                plan.write_headers(association, &mut self.scratch, number.value());
                let mut seal = [number.seal(&mut self.scratch, payload, plan.next_header, padding)];
                esp::seal_batch(&mut seal);
                let is_sealed = seal[0].result().is_ok();
                outbound::finish(association, plan, &mut self.scratch);
                packet.write_at(l3, &self.scratch);
                if !is_sealed {
                    verdicts[row] = Verdict::drop(reasons::ESP_TOO_BIG).0;
                }
            }
            esp::seal_batch(&mut seals);
            for (seal, at) in seals.iter().zip(of) {
                if seal.result().is_err() {
                    verdicts[usize::from(members[at].row)] = Verdict::drop(reasons::ESP_TOO_BIG).0;
                }
            }
        }
        let mut prepared = self.prepared[before..].iter().peekable();
        let (mut count, mut bytes) = (0, 0);
        for Member { association, plan, row, l3 } in members {
            let (row, l3) = (usize::from(*row), usize::from(*l3));
            let is_prepared = prepared.next_if(|own| own.row == row).is_some();
            if !Verdict(verdicts[row]).is_next() {
                continue;
            }
            (count, bytes) = (count + 1, bytes + plan.payload as u64);
            if is_prepared || association.parameters().udp.is_none() {
                continue;
            }
            let packet = &mut packets[row];
            if packet.cells() == 1 {
                let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
                outbound::finish(association, plan, ip);
            }
        }
        if count > 0 {
            self.counters.sealed.add(count);
            self.counters.sealed_bytes.add(bytes);
        }
    }
}

/// Makes room as a plan says, and writes the EtherType of what comes out.
fn grow(packet: &mut Packet, pool: &mut Pool, plan: &Plan, l3: usize) -> bool {
    let Plan { family, .. } = *plan;
    let (kept, front) = (plan.kept as usize, plan.front as usize);
    let (payload, back) = (plan.payload as usize, plan.back as usize);
    // What is behind the IP packet goes. Bytes in front and behind need no zeros: all are written.
    if !packet.truncate(pool, l3 + kept + payload)
        || !packet.push_back(back) && !packet.grow_back(pool, back)
        || !packet.push_front(front) && !packet.grow_front(pool, front)
    {
        return false;
    }
    let headers = l3 + kept;
    if packet.data().len() < front + headers && !packet.linearise(pool, front + headers) {
        return false;
    }
    move_headers(packet.data_mut(), headers, front, 0);
    if packet.cells() > 1 {
        // If it fits one cell; otherwise it is sealed in a buffer.
        packet.linearise(pool, packet.frame_len());
    }
    let kind = if family == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let Some(place) = packet.data_mut().get_mut(l3 - 2..l3) else { return false };
    place.copy_from_slice(&kind.0.to_be_bytes());
    true
}
